//! Nothing in a workspace's Gemini settings takes effect before trust, cold or warm.
