"""All that knows SGLang: its flags by version, its log, its endpoints, its config file."""
