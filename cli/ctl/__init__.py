"""What a person does with queues from a shell: the commands of kueuectl, with its flags and columns, and what Sluice can tell besides."""
