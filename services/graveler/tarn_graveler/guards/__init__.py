"""Guards that every build and every staged address passes, so that no collection takes what they need."""
