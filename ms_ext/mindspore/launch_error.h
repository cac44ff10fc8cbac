// MindSpore's GPU back end logs what a kernel throws and raises an error of its own, without it. This puts the words
// back.
#pragma once

extern "C" {

// The next exception that MindSpore raises is about a failed launch, and begins with `message`.
void ms_ext_explain(const char *message);

// A launch has failed. Whoever reads that number (bridge/_start.py) learns of it also where MindSpore launches later.
void ms_ext_note_failed_launch();

}  // extern "C"
