"""Every message on the bus: its subject, its Struct, its version.

`streams` is the one table of streams and of who may use them, `subjects` the one place that makes subjects, `codec` the one
place that makes bytes. Internal messages are MessagePack; `cloudevents` (public) are JSON.
"""
