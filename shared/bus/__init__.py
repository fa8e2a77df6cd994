"""The bus: JetStream behind a small interface (`interface`), permissions generated from the table of streams."""
