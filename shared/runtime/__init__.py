"""The life of a service process: settings, logs, traces, health, signals, the bus. What a service does is none of its business."""
