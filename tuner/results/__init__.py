"""Records of trials, and what is made of them: files, dashboard, exports."""
