"""Changes of retained messages: before they are packed, and several of them under one key."""
