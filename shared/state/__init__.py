"""Folds the messages of the bus into the model: what a service knows, and how far it has read.

`objects` keeps the newest state of every object, `queues` counts what waits and runs per queue, `scheduling` is all that the scheduler decides on.
Nothing here talks to the bus or reads a clock; the time is an argument.
"""
