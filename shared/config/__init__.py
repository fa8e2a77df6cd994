"""Settings of the services, and Kueue's configuration file."""
