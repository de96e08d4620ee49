"""`python -m scirocco`: the command line."""

from scirocco.cli import main

if __name__ == "__main__":
    main()
