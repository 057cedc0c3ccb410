"""The Optuna study: what to try next, what it meant, when to stop."""
