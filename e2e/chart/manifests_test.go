package chart

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// kinds are the allowed kinds of objects in the chart and the documentation, with their versions.
var kinds = map[string]func() metav1.Object{
	"v1 Pod":                                  func() metav1.Object { return &corev1.Pod{} },
	"v1 Secret":                               func() metav1.Object { return &corev1.Secret{} },
	"v1 Service":                              func() metav1.Object { return &corev1.Service{} },
	"v1 ServiceAccount":                       func() metav1.Object { return &corev1.ServiceAccount{} },
	"apps/v1 Deployment":                      func() metav1.Object { return &appsv1.Deployment{} },
	"apps/v1 StatefulSet":                     func() metav1.Object { return &appsv1.StatefulSet{} },
	"batch/v1 Job":                            func() metav1.Object { return &batchv1.Job{} },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() metav1.Object { return &autoscalingv2.HorizontalPodAutoscaler{} },
	"policy/v1 PodDisruptionBudget":           func() metav1.Object { return &policyv1.PodDisruptionBudget{} },
	"networking.k8s.io/v1 Ingress":            func() metav1.Object { return &networkingv1.Ingress{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() metav1.Object { return &networkingv1.NetworkPolicy{} },
	"gateway.networking.k8s.io/v1 HTTPRoute":  func() metav1.Object { return &gatewayv1.HTTPRoute{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() metav1.Object { return &monitoringv1.ServiceMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() metav1.Object { return &monitoringv1.PrometheusRule{} },
}

var separator = regexp.MustCompile(`(?m)^---$`)

// An installation has the objects of a rendered chart.
type installation struct {
	t       *testing.T
	objects []metav1.Object
	pod     corev1.PodTemplateSpec // pod template of the hubs
	claims  []string               // volume claims of each pod
}

// install renders the chart, and decodes the objects strictly: unknown fields, fields in the wrong
// case and duplicate fields are errors.
func install(t *testing.T, values map[string]any, in cluster) *installation {
	t.Helper()
	texts, err := render(t, values, in)
	if err != nil {
		t.Fatal(err)
	}
	delete(texts, "NOTES.txt")
	i := &installation{t: t}
	for _, file := range slices.Sorted(maps.Keys(texts)) {
		for _, doc := range separator.Split(texts[file], -1) {
			if strings.TrimSpace(doc) == "" {
				continue
			}
			i.objects = append(i.objects, decode(t, file, doc))
		}
	}
	workloads := 0
	for _, o := range i.objects {
		switch w := o.(type) {
		case *appsv1.StatefulSet:
			workloads++
			i.pod = w.Spec.Template
			for _, c := range w.Spec.VolumeClaimTemplates {
				i.claims = append(i.claims, c.Name)
			}
			i.wantSelected(w.Spec.Selector, i.pod.Labels, "StatefulSet")
		case *appsv1.Deployment:
			workloads++
			i.pod = w.Spec.Template
			i.wantSelected(w.Spec.Selector, i.pod.Labels, "Deployment")
		}
	}
	if workloads != 1 {
		t.Fatalf("got %d StatefulSets and Deployments, want 1", workloads)
	}
	return i
}

// decode decodes a manifest.
func decode(t *testing.T, file, doc string) metav1.Object {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	newObject, ok := kinds[kind.APIVersion+" "+kind.Kind]
	if !ok {
		t.Fatalf("%s: got %s %s, which the chart may not install:\n%s", file, kind.APIVersion, kind.Kind, doc)
	}
	json, err := yaml.YAMLToJSONStrict([]byte(doc))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	object := newObject()
	strict, err := kjson.UnmarshalStrict(json, object)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, err := range strict {
		t.Errorf("%s: %v", file, err)
	}
	return object
}

// find returns the object of a type with a name, or nil.
func find[T metav1.Object](i *installation, name string) (found T) {
	for _, o := range i.objects {
		if v, ok := o.(T); ok && v.GetName() == name {
			return v
		}
	}
	return found
}

// wantSelected checks that a selector matches labels.
func (i *installation) wantSelected(s *metav1.LabelSelector, set map[string]string, what string) {
	i.t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(set)) {
		i.t.Errorf("%s: %v does not select %v, %v", what, selector, set, err)
	}
}

// TestManifests checks the invariants of all combinations.
func TestManifests(t *testing.T) {
	for name, text := range cases(t) {
		t.Run(name, func(t *testing.T) {
			i := install(t, parse(t, text), installed)
			names := map[string]bool{}
			for _, o := range i.objects {
				key := fmt.Sprintf("%T %s", o, o.GetName())
				if names[key] {
					t.Errorf("got two objects %s", key)
				}
				names[key] = true
				if o.GetLabels()["app.kubernetes.io/instance"] != release || o.GetLabels()["app.kubernetes.io/managed-by"] != "Helm" {
					t.Errorf("labels of %s = %v, want the release and Helm", key, o.GetLabels())
				}
				if o.GetNamespace() != "" {
					t.Errorf("%s has a namespace, want the one of helm -n", key)
				}
				i.check(o)
			}
			i.checkPod(&i.pod.Spec, i.claims)
			i.checkWait()
			i.checkDrain()
		})
	}
}

// check checks an object and its references.
func (i *installation) check(o metav1.Object) {
	i.t.Helper()
	switch o := o.(type) {
	case *corev1.Pod: // for helm test
		i.checkPod(&o.Spec, nil)
	case *corev1.ServiceAccount:
		if o.AutomountServiceAccountToken == nil || *o.AutomountServiceAccountToken {
			i.t.Error("ServiceAccount mounts its token")
		}
	case *corev1.Secret:
		if len(o.StringData) > 0 {
			i.t.Errorf("Secret %s has stringData, which keeps removed values in the cluster", o.Name)
		}
	case *corev1.Service:
		i.wantSelected(metav1.SetAsLabelSelector(o.Spec.Selector), i.pod.Labels, "Service "+o.Name)
		for _, p := range o.Spec.Ports {
			i.wantPort(p.TargetPort.String(), "Service "+o.Name)
			if (p.TargetPort.String() == "ops") != (o.Spec.ClusterIP == corev1.ClusterIPNone) {
				i.t.Errorf("target port of Service %s = %s, want ops only for headless Services", o.Name, p.TargetPort.String())
			}
		}
	case *appsv1.StatefulSet:
		if s := find[*corev1.Service](i, o.Spec.ServiceName); s == nil || s.Spec.ClusterIP != corev1.ClusterIPNone {
			i.t.Errorf("found no headless Service %s", o.Spec.ServiceName)
		}
		if o.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			i.t.Errorf("pod management policy = %s, want Parallel, so that an upgrade can replace a hub that is not ready", o.Spec.PodManagementPolicy)
		}
		if *o.Spec.Replicas > 1 {
			i.t.Errorf("got %d replicas with a disk, want 1", *o.Spec.Replicas)
		}
	case *appsv1.Deployment:
		if s := o.Spec.Strategy; (s.RollingUpdate != nil) != (s.Type == appsv1.RollingUpdateDeploymentStrategyType) {
			i.t.Errorf("strategy = %s with %v, want options only for RollingUpdate", s.Type, s.RollingUpdate)
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		d := find[*appsv1.Deployment](i, o.Spec.ScaleTargetRef.Name)
		if d == nil {
			i.t.Fatalf("found no Deployment %s to scale", o.Spec.ScaleTargetRef.Name)
		}
		if d.Spec.Replicas != nil {
			i.t.Error("Deployment with an autoscaler has replicas, want none")
		}
	case *policyv1.PodDisruptionBudget:
		i.wantSelected(o.Spec.Selector, i.pod.Labels, "PodDisruptionBudget")
		if (o.Spec.MinAvailable == nil) == (o.Spec.MaxUnavailable == nil) {
			i.t.Error("PodDisruptionBudget: want either minAvailable or maxUnavailable")
		}
	case *networkingv1.Ingress:
		for _, r := range o.Spec.Rules {
			for _, p := range r.HTTP.Paths {
				i.checkBackend(p.Backend.Service.Name, p.Backend.Service.Port.Name, 0)
			}
		}
	case *gatewayv1.HTTPRoute:
		for _, r := range o.Spec.Rules {
			for _, b := range r.BackendRefs {
				i.checkBackend(string(b.Name), "", int32(*b.Port))
			}
		}
	case *networkingv1.NetworkPolicy:
		i.wantSelected(&o.Spec.PodSelector, i.pod.Labels, "NetworkPolicy")
		for _, r := range o.Spec.Ingress {
			for _, p := range r.Ports {
				i.wantPort(p.Port.String(), "NetworkPolicy")
				if p.Port.String() == "ops" && len(r.From) == 0 {
					i.t.Error("NetworkPolicy allows every pod to reach the operations port")
				}
			}
		}
	case *monitoringv1.ServiceMonitor:
		for _, e := range o.Spec.Endpoints {
			found := false
			for _, other := range i.objects {
				if s, ok := other.(*corev1.Service); ok && labels.SelectorFromSet(o.Spec.Selector.MatchLabels).Matches(labels.Set(s.Labels)) {
					found = slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == e.Port })
				}
			}
			if !found {
				i.t.Errorf("found no Service with the monitored port %s", e.Port)
			}
		}
	case *monitoringv1.PrometheusRule:
		for _, g := range o.Spec.Groups {
			for _, r := range g.Rules {
				if r.Expr.String() == "" || (r.Alert == "") == (r.Record == "") {
					i.t.Errorf("group %s has an invalid rule: %+v", g.Name, r)
				}
			}
		}
	}
}

// checkBackend checks that a Service has a port by name or number, and that it is not the
// operations port.
func (i *installation) checkBackend(service, name string, number int32) {
	i.t.Helper()
	s := find[*corev1.Service](i, service)
	if s == nil {
		i.t.Fatalf("found no Service %s", service)
	}
	for _, p := range s.Spec.Ports {
		if (p.Name == name || p.Port == number) && p.TargetPort.String() == "http" {
			return
		}
	}
	i.t.Errorf("found no port %[2]s %[3]d of Service %[1]s", service, name, number)
}

// wantPort checks that the pods of hubs have a port.
func (i *installation) wantPort(name, what string) {
	i.t.Helper()
	if !slices.ContainsFunc(i.pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == name }) {
		i.t.Errorf("%s: pods have no port %s", what, name)
	}
}

// checkPod checks that a pod has no unnecessary privileges, and that its mounts and references
// exist. claims are the volume claims of the pod.
func (i *installation) checkPod(p *corev1.PodSpec, claims []string) {
	i.t.Helper()
	if p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken {
		i.t.Error("pod mounts a ServiceAccount token")
	}
	if p.ServiceAccountName != "" && p.ServiceAccountName != "default" && find[*corev1.ServiceAccount](i, p.ServiceAccountName) == nil {
		i.t.Errorf("found no ServiceAccount %s", p.ServiceAccountName)
	}
	if c := p.SecurityContext; c == nil || !*c.RunAsNonRoot || *c.RunAsUser != 65532 || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		i.t.Errorf("security context of a pod = %+v", c)
	}
	volumes := slices.Clone(claims)
	for _, v := range p.Volumes {
		volumes = append(volumes, v.Name)
		if v.Secret != nil {
			for _, item := range v.Secret.Items {
				i.wantKey(v.Secret.SecretName, item.Key)
			}
		}
	}
	for _, c := range slices.Concat(p.InitContainers, p.Containers) {
		s := c.SecurityContext
		if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			i.t.Errorf("security context of container %s = %+v", c.Name, s)
		}
		for _, m := range c.VolumeMounts {
			if !slices.Contains(volumes, m.Name) {
				i.t.Errorf("container %s: found no volume %s", c.Name, m.Name)
			}
			if m.Name != "data" && m.Name != "tmp" && !m.ReadOnly {
				i.t.Errorf("container %s: mount %s is writable", c.Name, m.Name)
			}
		}
		seen := map[string]bool{}
		for _, e := range c.Env {
			if seen[e.Name] {
				i.t.Errorf("container %s has variable %s twice", c.Name, e.Name)
			}
			seen[e.Name] = true
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				i.wantKey(e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key)
			}
		}
	}
}

// wantKey checks that a Secret of the chart has a key. In the cases, Secrets with the prefix "hub-"
// are external.
func (i *installation) wantKey(secret, key string) {
	i.t.Helper()
	if strings.HasPrefix(secret, "hub-") && find[*corev1.Secret](i, secret) == nil {
		return
	}
	if s := find[*corev1.Secret](i, secret); s == nil || len(s.Data[key]) == 0 {
		i.t.Errorf("found no Secret %s with the key %s", secret, key)
	}
}

// checkWait checks that a hub waits long for Redis: Kubernetes restarts an exited one with growing
// delays.
func (i *installation) checkWait() {
	i.t.Helper()
	env := map[string]string{}
	for _, e := range i.pod.Spec.Containers[0].Env {
		env[e.Name] = e.Value
	}
	_, redis := env["RSHUB_REDIS_URL"]
	wait, _ := time.ParseDuration(env["RSHUB_START_TIMEOUT"])
	if redis && wait < 10*time.Minute {
		i.t.Errorf("start timeout with Redis = %v, want at least 10m", wait)
	}
}

// checkDrain checks that a hub has enough time to stop before it is killed.
func (i *installation) checkDrain() {
	i.t.Helper()
	hub := i.pod.Spec.Containers[0]
	needs := time.Duration(0)
	if hub.Lifecycle != nil {
		needs = time.Duration(hub.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	}
	for _, e := range hub.Env {
		if e.Name == "RSHUB_GRACE" {
			grace, err := time.ParseDuration(e.Value)
			if err != nil {
				i.t.Error(err)
			}
			needs += grace
		}
	}
	if killed := time.Duration(*i.pod.Spec.TerminationGracePeriodSeconds) * time.Second; killed <= needs {
		i.t.Errorf("termination grace period = %[2]v, want more than %[1]v", needs, killed)
	}
}
