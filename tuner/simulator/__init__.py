"""A simulated box: a real process with SGLang's flags, log, HTTP interface and deaths.

`python -m tuner.simulator --box NAME_OR_PATH [SGLang flags]` starts it. Speed, memory and start-up time
follow a physical model whose coefficients stand in the box's YAML profile; nothing is looked up in a table
of answers, so changing a coefficient changes what a client measures.
"""
