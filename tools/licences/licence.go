package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// may are the licences of what rshub may link, by their SPDX identifiers. Each of them lets
// rshub be given away under its own, Apache-2.0.
var may = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// marks are sentences by which a licence is known, as plain returns them. A text that has
// all sentences of a licence has that licence; it may have several. Of licences that rshub
// may not link there are a few, so that one behind a permissive licence in the same file is
// noticed as well.
var marks = map[string][]string{
	"Apache-2.0":   {"apache license version 2 0", "grant of copyright license subject to the terms and conditions of this license", "grant of patent license", "disclaimer of warranty"},
	"BSD-2-Clause": {"redistribution and use in source and binary forms with or without modification are permitted provided that the following conditions are met", "redistributions of source code must retain the above copyright notice", "redistributions in binary form must reproduce the above copyright notice", "even if advised of the possibility of such damage"},
	"BSD-3-Clause": {"redistribution and use in source and binary forms with or without modification are permitted provided that the following conditions are met", "neither the name", "may be used to endorse or promote products derived from this software without specific prior written permission", "even if advised of the possibility of such damage"},
	"BSD-4-Clause": {"all advertising materials mentioning features or use of this software must display"},
	"MIT":          {"permission is hereby granted free of charge to any person obtaining a copy of this software and associated documentation files", "the above copyright notice and this permission notice shall be included in all copies or substantial portions of the software", "the software is provided as is without warranty of any kind"},
	"ISC":          {"permission to use copy modify and or distribute this software for any purpose with or without fee is hereby granted provided that the above copyright notice and this permission notice appear in all copies"},
	"0BSD":         {"permission to use copy modify and or distribute this software for any purpose with or without fee is hereby granted the software is provided"},
	"GPL":          {"gnu general public license"},
	"LGPL":         {"gnu lesser general public license"},
	"AGPL":         {"gnu affero general public license"},
	"MPL":          {"mozilla public license"},
	"EPL":          {"eclipse public license"},
	"CDDL":         {"common development and distribution license"},
	"SSPL":         {"server side public license"},
	"BUSL":         {"business source license"},
	"Elastic":      {"elastic license"},
	"Commons":      {"commons clause"},
	"CC":           {"creative commons"},
}

var notWord = regexp.MustCompile(`[^a-z0-9]+`)

// plain returns the words of a text, without what differs from one copy of a licence to
// another: case, marks, lines.
func plain(text string) string {
	return strings.TrimSpace(notWord.ReplaceAllString(strings.ToLower(text), " "))
}

// kinds returns the licences that a text has.
func kinds(text string) (all []string) {
	words := plain(text)
	for _, kind := range slices.Sorted(maps.Keys(marks)) {
		if !slices.ContainsFunc(marks[kind], func(mark string) bool { return !strings.Contains(words, mark) }) {
			all = append(all, kind)
		}
	}
	if slices.Contains(all, "BSD-3-Clause") && strings.Count(words, "redistributions of source code must retain") <= strings.Count(words, "neither the name") {
		all = slices.DeleteFunc(all, func(kind string) bool { return kind == "BSD-2-Clause" }) // it is part of the other
	}
	return all
}

// licence returns the licences of a text, and an error unless rshub may link what has them.
func licence(text string) ([]string, error) {
	all := kinds(text)
	if len(all) == 0 {
		return nil, fmt.Errorf("is no licence that is known here")
	}
	for _, kind := range all {
		if !slices.Contains(may, kind) {
			return nil, fmt.Errorf("is %s, which rshub may not link", kind)
		}
	}
	return all, nil
}

var (
	// Apache's text has lines that begin so, and name nobody.
	copyrightLine = regexp.MustCompile(`(?i)^\W*(copyright\s+(\(c\)\s*|©\s*)?(\d{4}|[A-Z"]).*|\(c\)\s+\d{4}.*|©\s*\d{4}.*)$`)
	nobody        = regexp.MustCompile(`(?i)\[yyyy\]|\{yyyy\}|copyright (license|notice|owner|holder|statement)`)
)

// copyrights returns the lines of a text that say whose it is, and the text without them.
func copyrights(text string) (lines []string, rest string) {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		said := strings.TrimSpace(strings.Trim(strings.TrimSpace(line), "/*#"))
		if copyrightLine.MatchString(said) && !nobody.MatchString(said) {
			if !slices.Contains(lines, said) {
				lines = append(lines, said)
			}
			continue
		}
		kept.WriteString(line)
	}
	return lines, kept.String()
}

// headers returns the copyright lines at the top of the sources of a module that are linked.
func (m *module) headers() (lines []string, err error) {
	for _, dir := range slices.Sorted(maps.Keys(m.packages)) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			head, _, _ := strings.Cut(string(content), "\npackage ")
			said, _ := copyrights(head)
			lines = append(lines, said...)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}
