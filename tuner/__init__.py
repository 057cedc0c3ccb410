"""tuner: finds the fastest SGLang launch configuration for a box, and proves it."""

__version__ = "0.1.0"
