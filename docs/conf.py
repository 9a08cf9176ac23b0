"""Sphinx builds the site from the Markdown in this folder: `make docs`."""

import sys
from pathlib import Path

from scommer import __version__

sys.path.insert(0, str(Path(__file__).parent / "_site"))

project, author, version = "scommer", "the scommer authors", __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "pages"]
exclude_patterns = ["_site", "templates"]

highlight_language = "none"
myst_heading_anchors = 3
myst_disable_syntax = ["myst_line_comment", "myst_block_break", "myst_target"]  # a line may start with a % sign
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"scommer {version}"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style, pygments_dark_style = "friendly", "monokai"
