"""Sources of users beside the password file: tokens, and a service that is asked over HTTP."""
