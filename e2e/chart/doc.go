// Package chart tests the Helm chart in deploy/helm: it is linted, rendered in many
// combinations into golden files, and each manifest is read strictly as what
// Kubernetes would read. It is not vetted in the gate: to compile Helm
// and the types of Kubernetes takes longer than all the rest.
//
//	go test -count=1 ./...            checks everything
//	go test -count=1 ./... -update    writes the golden files and the table of values
//
// Without -count=1 go may show an old result: the chart is outside of the module.
package chart
