package resourcesync

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// specExamples matches all examples of the standard. testdata/examples has some of each
// kind.
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
		t.Logf("%s does not exist; reading only the examples in testdata", specExamples)
	}
	for _, file := range append(files, spec...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if filepath.Base(file) == "resourcesync_ex_9.xml" {
				t.Skip("this example of the standard is HTML")
			}
			d := readExample(t, file)
			if len(d.Items) == 0 || d.Capability == "" {
				t.Errorf("ReadXML = %+v, want a capability and entries", d)
			}
			checkReadBack(t, marshalXML(t, d), d)
		})
	}
}

// TestExampleContent compares one example with expectations written by hand.
func TestExampleContent(t *testing.T) {
	d := readExample(t, "testdata/examples/resourcesync_ex_23.xml")
	if d.Capability != ChangeDumpManifest || len(d.Links) != 1 || d.Links[0].Rel != "up" || len(d.Items) != 4 || d.ListsChanges() {
		t.Fatalf("got %+v, want a Change Dump Manifest with 1 link and 4 entries", d)
	}
	c := d.Items[3].Change
	if c.Loc != "http://example.com/res7.html" || c.Change != Updated || *c.Length != 5426 || c.Path != "/changes/res7-v2.html" ||
		c.Hash != "md5:0988647082c8bc51778894a48ec3b576" || c.Type != "text/html" || c.Lastmod.Unix() != 1357156800 {
		t.Errorf("entry 4: got %+v, want res7.html as in the example", c)
	}
}

// TestExamplesAreValidChanges validates the changes in the examples of the standard. One
// example is invalid: its digests are not hex digits, which the standard requires.
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
				t.Errorf("%s: Validate() of %s = %v, want an error only in resourcesync_ex_27.xml", base, it.Loc, err)
			}
		}
	}
}
