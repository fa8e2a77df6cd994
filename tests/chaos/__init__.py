"""The real stack under load and real faults, judged from outside: `python -m tests.chaos`."""
