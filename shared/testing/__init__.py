"""What tests build on: messages made with few words, and servers in memory. No part of the product imports it."""
