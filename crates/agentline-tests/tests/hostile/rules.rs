//! No spelling of a refused command or path evades its rule.
