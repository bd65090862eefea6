"""What becomes of each use of FlashInfer in a source tree, release by release; nothing audited is imported or run."""
