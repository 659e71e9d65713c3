//! What all answers of the scripted models share, whatever their parts are.

/// One answer of a scripted model: parts of the type `P`, or an error of the type `E`.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedAnswer<P, E> {
    pub(crate) parts: Vec<P>,
    pub(crate) usage: ModelTokens,
    pub(crate) cut: bool,
    pub(crate) fault: Option<ModelFault<E>>,
    pub(crate) delay_ms: u64,
}

/// A failure of the service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ModelFault<E> {
    /// The service answers with an error.
    Error(E),
    /// The connection closes without an answer.
    Drop,
    /// The connection closes after the first piece of text.
    DropMidway,
    /// Nothing follows the first piece of text, and the connection stays open.
    HangMidway,
    /// Nothing is ever sent.
    Hang,
}

/// The token counts that an answer reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelTokens {
    /// Tokens of the prompt, including cached ones.
    pub input: u64,
    /// Tokens of the prompt that came from a cache.
    pub cached: u64,
    /// Tokens of the answer, including reasoning.
    pub output: u64,
    /// Tokens of the reasoning.
    pub reasoning: u64,
}

impl Default for ModelTokens {
    fn default() -> Self {
        Self { input: 100, cached: 20, output: 30, reasoning: 5 }
    }
}

impl<P, E> ScriptedAnswer<P, E> {
    /// Never answers.
    #[must_use]
    pub fn hang() -> Self {
        Self::fault(ModelFault::Hang)
    }

    /// Closes the connection without an answer.
    #[must_use]
    pub fn drop_connection() -> Self {
        Self::fault(ModelFault::Drop)
    }

    /// Closes the connection after the first piece of text.
    #[must_use]
    pub fn drop_midway(mut self) -> Self {
        self.fault = Some(ModelFault::DropMidway);
        self
    }

    /// Sends the first piece of text and then nothing more.
    #[must_use]
    pub fn hang_midway(mut self) -> Self {
        self.fault = Some(ModelFault::HangMidway);
        self
    }

    /// Sets the reported token counts.
    #[must_use]
    pub fn usage(mut self, tokens: ModelTokens) -> Self {
        self.usage = tokens;
        self
    }

    /// Waits before the answer starts.
    #[must_use]
    pub fn delay(mut self, millis: u64) -> Self {
        self.delay_ms = millis;
        self
    }

    /// Reports that the answer was truncated at its maximum length.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.cut = true;
        self
    }

    pub(crate) fn fault(fault: ModelFault<E>) -> Self {
        Self { fault: Some(fault), ..Self::of([]) }
    }

    pub(crate) fn of(parts: impl IntoIterator<Item = P>) -> Self {
        Self {
            parts: parts.into_iter().collect(),
            usage: ModelTokens::default(),
            cut: false,
            fault: None,
            delay_ms: 0,
        }
    }

    pub(crate) fn and(mut self, part: P) -> Self {
        self.parts.push(part);
        self
    }
}
