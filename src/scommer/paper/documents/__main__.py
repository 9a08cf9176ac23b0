"""`python -m scommer.paper.documents` renders the documents of the repository in the current folder."""

from scommer.paper.documents.rendering import main

main()
