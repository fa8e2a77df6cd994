"""Objects that must be refused, by what they are, and what they are made of."""
