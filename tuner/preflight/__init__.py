"""What cannot run, found in seconds and without a launch: SGLang's own check of arguments, and our rules."""
