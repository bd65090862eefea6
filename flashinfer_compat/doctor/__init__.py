"""What keeps FlashInfer from working on this machine, and what to do: nothing is imported, run or deleted for it."""
