"""What an operator looks at from outside: health pages, over HTTP."""
