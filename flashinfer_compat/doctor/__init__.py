"""What keeps FlashInfer from working on this machine, and what to do: nothing is imported, and nothing is changed."""
