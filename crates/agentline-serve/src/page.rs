//! The files of the page, embedded in the program.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageFile {
    /// The name below `/assets/`.
    pub(crate) name: &'static str,
    /// The content type.
    pub(crate) content_type: &'static str,
    /// The text.
    pub(crate) text: &'static str,
}

/// The page.
pub(crate) const INDEX: &str = include_str!("page/index.html");

/// The files that the page loads.
pub(crate) const FILES: &[PageFile] = &[PageFile {
    name: "docs.css",
    content_type: "text/css; charset=utf-8",
    text: include_str!("page/docs.css"),
}];
