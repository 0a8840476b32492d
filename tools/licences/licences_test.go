package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	mit = `MIT License

Copyright (c) 2020 Some One

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in it.

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND.
`
	bsd2 = `Copyright (c) 2013, The Authors. All rights reserved.

Redistribution and use in source and binary forms, with or without
modification, are permitted provided that the following conditions are met:

  Redistributions of source code must retain the above copyright notice.
  Redistributions in binary form must reproduce the above copyright notice.
`
	bsd3 = `
  Neither the name of Google Inc. nor the names of its contributors may be used to endorse or promote products derived from
  this software without specific prior written permission.
`
	bsdEnd = "\nIN NO EVENT, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.\n"
)

func TestLicence(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
		refused    string
	}{
		{"MIT", mit, []string{"MIT"}, ""},
		{"BSD-2-Clause", bsd2 + bsdEnd, []string{"BSD-2-Clause"}, ""},
		{"BSD-3-Clause", bsd2 + bsd3 + bsdEnd, []string{"BSD-3-Clause"}, ""},
		{"both BSDs in one file", bsd2 + bsd3 + bsdEnd + bsd2 + bsdEnd, []string{"BSD-2-Clause", "BSD-3-Clause"}, ""},
		{"two licences in one file", bsd2 + bsd3 + bsdEnd + mit, []string{"BSD-3-Clause", "MIT"}, ""},
		{"an advertising clause", bsd2 + "All advertising materials mentioning features or use of this software must display this." + bsd3 + bsdEnd, nil, "BSD-4-Clause"},
		{"GPL", "GNU GENERAL PUBLIC LICENSE\nVersion 3", nil, "GPL, which rshub may not link"},
		{"GPL behind MIT", mit + "\nor the GNU General Public License", nil, "GPL, which rshub may not link"},
		{"Commons Clause before MIT", "\"Commons Clause\" License Condition\n" + mit, nil, "Commons"},
		{"half a licence", mit[:300], nil, "no licence that is known"},
		{"nothing", "", nil, "no licence that is known"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := licence(test.text)
			if !slices.Equal(got, test.want) || (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("licence() = %v, %v, want %v, %q", got, err, test.want, test.refused)
			}
		})
	}
}

func TestCopyrights(t *testing.T) {
	lines, rest := copyrights("Copyright 2009 The Go Authors.\n// (c) 2011 Some One\n   Copyright [yyyy] [name of copyright owner]\nThe above copyright notice\nCopyright Holder X\n")
	if want := []string{"Copyright 2009 The Go Authors.", "(c) 2011 Some One"}; !slices.Equal(lines, want) {
		t.Errorf("copyright lines %q, want %q", lines, want)
	}
	if !strings.Contains(rest, "[yyyy]") || !strings.Contains(rest, "The above") || strings.Contains(rest, "2009") {
		t.Errorf("the rest is %q", rest)
	}
}

// What is wrong with a module is an error that names it, and every module that has something
// wrong is named.
func TestRender(t *testing.T) {
	moduleOf := func(path string, files map[string]string) *module {
		m := &module{path: path, version: "v1.0.0", dir: t.TempDir(), packages: map[string]bool{}, programs: map[string]bool{"rshub": true}}
		for name, content := range files {
			file := filepath.Join(m.dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return m
	}
	one := moduleOf("example.org/one", map[string]string{"LICENSE": mit, "sub/deep/COPYING": bsd2 + bsdEnd, "other/LICENSE": "secret"})
	one.packages[filepath.Join(one.dir, "sub", "deep")] = true
	two := moduleOf("example.org/two", map[string]string{"License.txt": strings.Replace(mit, "Some One", "An Other", 1)})
	b, err := render([]*module{one, two})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| example.org/one | v1.0.0 | BSD-2-Clause, MIT | rshub |\n",
		"## MIT\n\n- example.org/one: Copyright (c) 2020 Some One\n- example.org/two: Copyright (c) 2020 An Other\n\n```\nMIT License",
		"## BSD-2-Clause\n\n- example.org/one, sub/deep/COPYING: Copyright (c) 2013",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the document lacks %q:\n%s", want, b)
		}
	}
	if compare(b, b) != nil {
		t.Error("a document is not equal to itself")
	}
	if err := compare(b[:len(b)/2], b); err == nil || !strings.Contains(err.Error(), "make licences") {
		t.Errorf("half a document: %v", err)
	}
	_, err = render([]*module{one, moduleOf("example.org/none", map[string]string{"README": mit}), moduleOf("example.org/gpl", map[string]string{"LICENSE": "GNU General Public License"}), moduleOf("example.org/notice", map[string]string{"NOTICE": mit})})
	for _, want := range []string{"example.org/none has no licence", "example.org/gpl: LICENSE is GPL", "example.org/notice has no licence"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("render() = %v, want %q", err, want)
		}
	}
}
