//! Reads the files attached to a prompt, detects their type from their content, and encodes them.

use crate::fs::disk_fs::canonicalize;
use crate::fs::regular_file::read_to_limit;
use agentline_core::{Attachment, AttachmentContent, Problem, Problems};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The maximum size of an attachment in bytes.
pub const MAX_BYTES: u64 = 20 << 20;

/// The configuration key that problems refer to.
const KEY: &str = "attachments";

/// Reads files to attach. Relative paths are resolved against `base`. Blocks.
///
/// # Errors
/// Returns all problems together: each file that is missing, empty, too large or of an unsupported type. Every problem
/// names `attachments` and has a hint.
pub fn read_attachments(paths: &[PathBuf], base: &Path) -> Result<Vec<Attachment>, Problems> {
    let mut problems = Vec::new();
    let mut attachments = Vec::new();
    for path in paths {
        match read(&base.join(path)) {
            Ok(attachment) => attachments.push(attachment),
            Err(problem) => problems.push(problem),
        }
    }
    Problems(problems).into_result().map(|()| attachments)
}

fn read(path: &Path) -> Result<Attachment, Problem> {
    let wrong =
        |message: String, hint: &str| Problem::new(KEY, format!("`{}` {message}", path.display())).hint(hint);
    let unread = |error| wrong(format!("cannot be read: {error}"), "use an existing, readable file");
    let too_large = || {
        wrong(
            format!("is larger than {} MB", MAX_BYTES >> 20),
            "use a smaller file, or name it in the prompt so that the agent reads it",
        )
    };
    // A pipe has no canonical path.
    let real = canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let found = fs::metadata(&real).map_err(unread)?;
    if found.is_dir() {
        return Err(wrong("is a directory".into(), "attach its files, or pass it with `--include-dir`"));
    }
    if found.is_file() && found.len() > MAX_BYTES {
        return Err(too_large());
    }
    // The file may be a pipe. The timeout of the run limits how long this read can block.
    let read = fs::File::open(&real).and_then(|file| read_to_limit(file, MAX_BYTES));
    let bytes = read.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => too_large(),
        _ => unread(error),
    })?;
    if bytes.is_empty() {
        return Err(wrong("is empty".into(), "use a file with content"));
    }
    let (mime, content) = recognised(bytes, path).ok_or_else(|| {
        wrong(
            "has an unknown file type".into(),
            "attach an image (png, jpeg, gif, webp, heic), audio (wav, mp3, ogg, flac, m4a), a PDF or UTF-8 text",
        )
    })?;
    Ok(Attachment::new(file_uri(&real), mime, content))
}

fn recognised(bytes: Vec<u8>, path: &Path) -> Option<(&'static str, AttachmentContent)> {
    if let Some(mime) = by_content(&bytes) {
        return Some((mime, AttachmentContent::Base64(STANDARD.encode(bytes))));
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
    Some((by_name(path), AttachmentContent::Text(text)))
}

/// Magic numbers: offset, bytes and MIME type. They are more reliable than file extensions.
const MAGIC: &[(usize, &[u8], &str)] = &[
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypheix", "image/heic"),
    (4, b"ftyphevc", "image/heic"),
    (4, b"ftypmif1", "image/heif"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftypM4B", "audio/mp4"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"%PDF-", "application/pdf"),
];

fn by_content(bytes: &[u8]) -> Option<&'static str> {
    let is_riff = bytes.starts_with(b"RIFF");
    let known = MAGIC.iter().find(|(at, magic, _)| {
        // A RIFF type is at offset 8. Text may contain the same bytes there, so the RIFF header is required.
        bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic)) && (*at != 8 || is_riff)
    });
    match (known, bytes) {
        (Some((.., mime)), _) => Some(mime),
        // A frame of MPEG audio, layers 1 to 3, with a valid bit rate and sample rate. No UTF-8 text starts with these
        // bytes.
        (None, [0xff, second, third, ..])
            if second & 0xe0 == 0xe0
                && second & 0x06 != 0
                && third & 0xf0 != 0xf0
                && third & 0x0c != 0x0c =>
        {
            Some("audio/mpeg")
        }
        _ => None,
    }
}

/// MIME types of text files by extension.
const TEXTS: &[(&[&str], &str)] = &[
    (&["md", "markdown"], "text/markdown"),
    (&["html", "htm"], "text/html"),
    (&["css"], "text/css"),
    (&["csv"], "text/csv"),
    (&["js", "mjs", "cjs"], "text/javascript"),
    (&["json"], "application/json"),
    (&["xml"], "application/xml"),
    (&["svg"], "image/svg+xml"),
    (&["yaml", "yml"], "application/yaml"),
    (&["toml"], "application/toml"),
];

fn by_name(path: &Path) -> &'static str {
    let end = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    TEXTS.iter().find(|(ends, _)| ends.contains(&end.as_str())).map_or("text/plain", |(_, mime)| mime)
}

/// Returns the `file:` URI of an absolute path.
fn file_uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in bytes_of(path) {
        let plain = byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=:@".contains(&byte);
        if plain {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

#[cfg(unix)]
fn bytes_of(path: &Path) -> Vec<u8> {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()
}

/// Converts `C:\a` to `/C:/a` and `\\host\a` to `host/a`. Not tested on Windows.
#[cfg(windows)]
fn bytes_of(path: &Path) -> Vec<u8> {
    let text = path.to_string_lossy().replace('\\', "/");
    let text = match text.strip_prefix("//?/") {
        Some(plain) => plain.strip_prefix("UNC/").map_or_else(|| format!("/{plain}"), str::to_owned),
        None => format!("/{text}"),
    };
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attached(name: &str, bytes: &[u8]) -> Result<Attachment, Problems> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(name), bytes).unwrap();
        read_attachments(&[name.into()], dir.path()).map(|mut all| all.remove(0))
    }

    #[test]
    fn file_types_are_detected_by_content() {
        let table: &[(&str, &[u8], &str)] = &[
            ("a.png", b"\x89PNG\r\n\x1a\nrest", "image/png"),
            ("photo", b"\xff\xd8\xff\xe0rest", "image/jpeg"),
            ("a.png", b"GIF89a..", "image/gif"),
            ("a.gif", b"GIF87a..", "image/gif"),
            ("a.webp", b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
            ("a.heic", b"\0\0\0\x18ftypheic\0\0\0\0", "image/heic"),
            ("a.heif", b"\0\0\0\x18ftypmif1\0\0\0\0", "image/heif"),
            ("a.wav", b"RIFF\x24\0\0\0WAVEfmt ", "audio/wav"),
            ("a.mp3", b"ID3\x04\0\0", "audio/mpeg"),
            ("a.mp3", b"\xff\xfb\x90\x44\0\0", "audio/mpeg"),
            ("a.ogg", b"OggS\0\x02", "audio/ogg"),
            ("a.flac", b"fLaC\0\0", "audio/flac"),
            ("a.m4a", b"\0\0\0\x20ftypM4A \0\0", "audio/mp4"),
            ("a.txt", b"%PDF-1.7\n", "application/pdf"),
        ];
        for (name, bytes, mime) in table {
            let attachment = attached(name, bytes).unwrap();
            let AttachmentContent::Base64(text) = &attachment.content else { panic!("{name} is no text") };
            assert_eq!(
                (&*attachment.mime, STANDARD.decode(text).unwrap().as_slice()),
                (*mime, *bytes),
                "{name}"
            );
        }
    }

    #[test]
    fn any_utf_8_is_text() {
        let table = [
            ("notes.md", "# é", "text/markdown"),
            ("main.rs", "fn main() {}", "text/plain"),
            ("README", "x", "text/plain"),
            ("DATA.JSON", "{}", "application/json"),
            ("a.png", "no picture at all", "text/plain"),
            ("song.txt", "HEAVY   WAVE", "text/plain"),
            ("s.svg", "<svg/>", "image/svg+xml"),
        ];
        for (name, text, mime) in table {
            let expected = AttachmentContent::Text(text.into());
            let attachment = attached(name, text.as_bytes()).unwrap();
            assert_eq!((&*attachment.mime, attachment.content), (mime, expected), "{name}");
        }
    }

    #[test]
    fn all_unsendable_files_are_reported_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
        file("good.txt", b"x");
        file("empty.txt", b"");
        file("bytes.bin", b"\x00\x01\x02\xff");
        file("nul.txt", b"a\0b");
        let large = fs::File::create(dir.path().join("large.png")).unwrap();
        large.set_len(MAX_BYTES + 1).unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        let names = ["none.png", "good.txt", "empty.txt", "bytes.bin", "nul.txt", "large.png", "folder"];
        let paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        let problems = read_attachments(&paths, dir.path()).unwrap_err().0;
        let message: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "cannot be read",
            "is empty",
            "unknown file type",
            "unknown file type",
            "larger than 20 MB",
            "is a directory",
        ];
        assert_eq!(message.len(), expected.len(), "{message:?}");
        for (message, expected) in message.iter().zip(expected) {
            assert!(message.starts_with("`attachments`: `") && message.contains(expected), "{message}");
        }
        assert!(problems.iter().all(|problem| problem.hint.is_some()));
    }

    #[cfg(unix)]
    #[test]
    fn device_files_are_not_read_endlessly() {
        let problems = read_attachments(&["/dev/zero".into()], Path::new("/")).unwrap_err();
        assert!(problems.to_string().contains("`/dev/zero` is larger than 20 MB"), "{problems}");
    }

    #[cfg(unix)]
    #[test]
    fn uris_name_the_resolved_file_and_are_escaped() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let name = "a b#c?d%e\"é日.txt";
        fs::write(dir.path().join(name), "x").unwrap();
        std::os::unix::fs::symlink(name, dir.path().join("link")).unwrap();
        let expected = format!("file://{}/a%20b%23c%3Fd%25e%22%C3%A9%E6%97%A5.txt", real.display());
        for path in [PathBuf::from(name), "link".into(), format!("x/../{name}").into(), dir.path().join(name)]
        {
            fs::create_dir_all(dir.path().join("x")).unwrap();
            let attachment = read_attachments(&[path], dir.path()).unwrap().remove(0);
            assert_eq!(attachment.uri, expected);
        }
    }

    proptest! {
        #[cfg(unix)]
        #[test]
        fn uris_round_trip_to_paths(path in "/\\PC{0,40}") {
            let uri = file_uri(Path::new(&path));
            let encoded = uri.strip_prefix("file://").unwrap().as_bytes();
            prop_assert!(encoded.iter().all(|byte| byte.is_ascii_graphic()));
            let (mut back, mut at) = (Vec::new(), 0);
            while at < encoded.len() {
                let hex = (encoded[at] == b'%').then(|| std::str::from_utf8(&encoded[at + 1..at + 3]).unwrap());
                back.push(hex.map_or(encoded[at], |hex| u8::from_str_radix(hex, 16).unwrap()));
                at += if hex.is_some() { 3 } else { 1 };
            }
            prop_assert_eq!(back, path.into_bytes());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some((mime, AttachmentContent::Text(text))) = recognised(bytes.clone(), Path::new("a")) {
                prop_assert_eq!((mime, text.into_bytes()), ("text/plain", bytes));
            }
        }
    }
}
