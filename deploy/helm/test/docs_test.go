package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// The values and manifests in the documentation are such.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Errorf("there are only %d examples", len(blocks))
	}
	for _, b := range blocks {
		if strings.HasPrefix(b[1], "apiVersion: ") {
			decode(t, "docs/kubernetes.md", b[1])
		} else {
			install(t, parse(t, b[1]), installed)
		}
	}
}
