//! Small sessions made for one thing each.
