"""Configuration of the documentation (`make docs`). Pages are executed, and a warning is an error."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "tools")]

import page_blocks  # noqa: E402
import plain_pages  # noqa: E402

import scirocco  # noqa: E402

# The environment of the code on the pages (myst-nb passes it to the kernels).
os.environ.update(page_blocks.environment())
os.environ.pop("MPLBACKEND")  # kernels use their own backend, which shows figures
os.environ["JUPYTER_PATH"] = str(HERE / "_ext")  # our kernel: this interpreter, without log messages

project = "scirocco"
author = "the scirocco developers"
copyright = "the scirocco developers"
version = release = scirocco.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
extensions += ["plain_pages", "docstrings", "mathml", "figures"]  # our own extensions, in _ext
exclude_patterns = ["_ext", "results/README.md"]

# ----------------------------------------------------------------------------------------------------- pages

nb_custom_formats = {".md": ["plain_pages.read", {}, False]}
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = False  # a failing page is a warning; -W makes it an error
nb_execution_show_tb = True
nb_execution_timeout = 300  # seconds per block
nb_execution_excludepatterns = plain_pages.without_code(HERE) + plain_pages.waiting()
nb_output_stderr = "show"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence", "attrs_inline", "attrs_block"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# ------------------------------------------------------------------------------------------------- reference

autosummary_generate = False  # the pages in api/ are written by hand and include the docstrings
suppress_warnings = ["ref.python"]  # attributes with the same name in two classes are listed, not linked
default_role = "literal"  # `name` in a docstring is code
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_preprocess_types = False
napoleon_attr_annotations = False

# ---------------------------------------------------------------------------------------------------- output

html_theme = "sphinx_book_theme"
html_title = "scirocco"
html_static_path = ["_static"]
html_css_files = ["scirocco.css"]
html_favicon = "_static/logo.svg"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "logo": {"image_light": "_static/logo.svg", "image_dark": "_static/logo-dark.svg", "text": "scirocco"},
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "home_page_in_toc": False,
    "navbar_start": [],
    "navbar_center": [],
    "navbar_end": [],
    "navbar_persistent": [],  # the search is in the sidebar
}
html_context = {"default_mode": "auto"}
