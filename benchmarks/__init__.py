"""Figures by which the tuner itself is judged. Each module is a program: `python -m benchmarks.verdict`."""
