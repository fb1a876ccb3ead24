"""What only the archive has, for requests that ask for it; no other request waits for it."""
