"""What the tests of the page share: a server with a past, a browser, and the steps of a person."""
