"""What `import detent` shows."""
