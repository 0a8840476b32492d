package resourcesync

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// specExamples are those of the standard's texts. Some of each kind are in
// testdata/examples too.
const specExamples = "../../shared/specs/examples/*.xml"

func examples(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func readExample(t testing.TB, file string) *Document {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ReadXML(bytes.NewReader(text), Limits{})
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

func TestExamples(t *testing.T) {
	files := examples(t, "testdata/examples/*.xml")
	if len(files) == 0 {
		t.Fatal("testdata/examples is empty")
	}
	spec := examples(t, specExamples)
	if len(spec) == 0 {
		t.Logf("%s is absent, only those in testdata are read", specExamples)
	}
	for _, file := range append(files, spec...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if filepath.Base(file) == "resourcesync_ex_9.xml" {
				t.Skip("is HTML, in the standard's text too")
			}
			d := readExample(t, file)
			if len(d.Items) == 0 || d.Capability == "" {
				t.Errorf("nothing was read: %+v", d)
			}
			wantSame(t, written(t, d), d)
		})
	}
}

// TestExampleByHand compares one example with what a person reads in it.
func TestExampleByHand(t *testing.T) {
	d := readExample(t, "testdata/examples/resourcesync_ex_23.xml")
	if d.Capability != ChangeDumpManifest || len(d.Links) != 1 || d.Links[0].Rel != "up" || len(d.Items) != 4 || d.ListsChanges() {
		t.Fatalf("got %+v", d)
	}
	c := d.Items[3].Change
	if c.Loc != "http://example.com/res7.html" || c.Change != Updated || *c.Length != 5426 || c.Path != "/changes/res7-v2.html" ||
		c.Hash != "md5:0988647082c8bc51778894a48ec3b576" || c.Type != "text/html" || c.Lastmod.Unix() != 1357156800 {
		t.Errorf("got %+v", c)
	}
}

// TestExamplesAreValidChanges validates the changes in the standard's examples. One example
// is not valid: its digests are not hex digits, although the standard asks for them.
func TestExamplesAreValidChanges(t *testing.T) {
	for _, file := range append(examples(t, "testdata/examples/*.xml"), examples(t, specExamples)...) {
		base := filepath.Base(file)
		if base == "resourcesync_ex_9.xml" {
			continue
		}
		d := readExample(t, file)
		if !d.ListsChanges() {
			continue
		}
		for _, it := range d.Items {
			if err := it.Validate(); (err != nil) != (base == "resourcesync_ex_27.xml") {
				t.Errorf("%s: %s: %v", base, it.Loc, err)
			}
		}
	}
}
