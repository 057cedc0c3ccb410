"""What the launches of a study teach: speed, memory, and which value kills. Pure; knows neither Optuna nor
files."""
