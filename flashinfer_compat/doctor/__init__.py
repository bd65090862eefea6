"""What keeps FlashInfer from working on this machine, and what to do. FlashInfer is not imported, nothing is changed."""
