package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestDocs checks that the values and manifests in the documentation are valid, and that its pods
// have no unnecessary privileges.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Errorf("got %d examples, want at least 5", len(blocks))
	}
	for _, b := range blocks {
		if strings.HasPrefix(b[1], "apiVersion: ") {
			if job, ok := decode(t, "docs/kubernetes.md", b[1]).(*batchv1.Job); ok {
				(&installation{t: t}).checkPod(&job.Spec.Template.Spec, nil)
			}
		} else {
			install(t, parse(t, b[1]), installed)
		}
	}
}
