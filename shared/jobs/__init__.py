"""Job kinds behind one small Protocol: pure functions that the gateway, the webhook and plug-ins share."""
