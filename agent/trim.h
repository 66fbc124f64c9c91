// SPDX-License-Identifier: Apache-2.0
#pragma once
// trim: gives back the pages of program and libraries that only the start needed (relocation
// tables, symbol names, constructors of libraries that come with libcurl and libpq). They are
// clean copies of files: what is needed again is mapped again by a minor fault.

// Never fails: what can't be given back stays.
void trim_code_pages(void);
