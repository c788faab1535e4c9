//! One module per concern; services as fakes that can be told what to say.
