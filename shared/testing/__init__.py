"""What tests build on: messages made with few words, and a bus in memory. No part of the product imports it."""
