package main

import (
	"encoding/json"
	"fmt"

	"gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// operation is an edit between a Get and an Update.
type operation struct {
	name string
	edit func(*JobSet)
}

var yes, no = true, false

func label(j *JobSet) { j.Labels = map[string]string{"team": fmt.Sprint(j.ResourceVersion)} }

func admit(j *JobSet) {
	j.Spec.Suspend = &no
	for i := range j.Spec.ReplicatedJobs {
		pods := &j.Spec.ReplicatedJobs[i].Template.Spec.Template
		pods.Spec.NodeSelector = map[string]string{"pool": "a"}
		pods.Spec.Tolerations = append(pods.Spec.Tolerations, corev1.Toleration{Key: "pool", Operator: "Exists"})
	}
}

func resize(j *JobSet) {
	for i := range j.Spec.ReplicatedJobs {
		job := &j.Spec.ReplicatedJobs[i].Template.Spec
		if job.Parallelism != nil && job.Completions != nil && *job.Parallelism == *job.Completions && *job.Parallelism > 0 {
			size := *job.Parallelism + 1
			job.Parallelism, job.Completions = &size, &size
		}
	}
}

// operationsFor returns what is allowed at any time.
func operationsFor(m manifest) []operation {
	all := []operation{{"label", label}, {"suspend and resume", nil}}
	if elastic(m) {
		all = append(all, operation{"resize", resize})
	}
	return all
}

func elastic(m manifest) bool {
	jobset := &JobSet{}
	exitOn(recode(m.content, jobset))
	for _, job := range jobset.Spec.ReplicatedJobs {
		mode := job.Template.Spec.CompletionMode
		if mode != nil && *mode != "Indexed" {
			return false
		}
	}
	return true
}

// changes are what an update must not do. Each changes something, whatever the manifest holds.
var changes = []operation{
	{"image", func(j *JobSet) { container(j).Image += "x" }},
	{"command", func(j *JobSet) { container(j).Command = append(container(j).Command, "x") }},
	{"args", func(j *JobSet) { container(j).Args = append(container(j).Args, "") }},
	{"env value", func(j *JobSet) { container(j).Env = append(container(j).Env, corev1.EnvVar{Name: "X", Value: "x"}) }},
	{"amount", func(j *JobSet) {
		overhead := corev1.ResourceList{"cpu": resource.MustParse("12345m")} // requests and limits may change while suspended
		j.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Overhead = overhead
	}},
	{"backoffLimit", func(j *JobSet) { limit := int32(77); j.Spec.ReplicatedJobs[0].Template.Spec.BackoffLimit = &limit }},
	{"name", func(j *JobSet) { container(j).Name += "x" }},
	{"hostNetwork", func(j *JobSet) {
		pod := &j.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
		pod.HostNetwork = !pod.HostNetwork
	}},
}

func container(j *JobSet) *corev1.Container {
	return &j.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0]
}

// mergePatch sends what controller-runtime's MergeFrom makes of an edit, which is how Kueue writes since v0.9.
func (s *server) mergePatch(name string, edit func(*JobSet)) (*JobSet, error) {
	jobset, err := s.get(name)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(jobset)
	exitOn(err)
	edit(jobset)
	after, err := json.Marshal(jobset)
	exitOn(err)
	patch, err := jsonpatch.CreateMergePatch(before, after)
	exitOn(err)
	stored := &JobSet{}
	return stored, s.send("PATCH", "/"+name, asMergePatch, json.RawMessage(patch), stored)
}

// queue replays Kueue: its webhook creates the JobSet suspended, it admits to a flavor, evicts, admits to another.
// Source: kueue pkg/podset (Merge, RestorePodSpec), pkg/controller/jobs/jobset (RunWithPodSetsInfo, RestorePodSetsInfo).
func (t *table) queue(m manifest, created, way string, write func(*server, string, func(*JobSet)) (*JobSet, error)) {
	name, _ := t.create(m, created, true)
	original, err := t.server.get(name)
	exitOn(err)
	step := func(said string, edit func(*JobSet)) {
		_, err := write(t.server, name, edit)
		t.note(m, created, "queue ("+way+"): "+said, err)
	}
	start := func(flavor string) func(*JobSet) {
		return func(j *JobSet) {
			j.Spec.Suspend = &no
			for i := range j.Spec.ReplicatedJobs {
				inject(&j.Spec.ReplicatedJobs[i].Template.Spec.Template, flavor)
			}
		}
	}
	evict := func(j *JobSet) {
		j.Spec.Suspend = &yes
		for i := range j.Spec.ReplicatedJobs {
			restore(&j.Spec.ReplicatedJobs[i].Template.Spec.Template, original.Spec.ReplicatedJobs[i].Template.Spec.Template)
		}
	}
	step("admit", start("a"))
	step("label while it runs", label)
	step("evict", evict)
	step("admit elsewhere", start("b"))
	step("evict again", evict)
	left, err := t.server.get(name)
	exitOn(err)
	if !equality.Semantic.DeepEqual(left.Spec, original.Spec) {
		t.note(m, created, "queue ("+way+"): nothing is left", fmt.Errorf("the spec is not what it was"))
	}
}

func inject(pods *corev1.PodTemplateSpec, flavor string) {
	pods.Labels = with(pods.Labels, "kueue.x-k8s.io/podset", flavor)
	pods.Annotations = with(pods.Annotations, "kueue.x-k8s.io/workload", flavor)
	pods.Spec.NodeSelector = with(pods.Spec.NodeSelector, "pool", flavor)
	pods.Spec.Tolerations = append(pods.Spec.Tolerations, corev1.Toleration{Key: "pool", Operator: "Equal", Value: flavor})
	gate := corev1.PodSchedulingGate{Name: "kueue.x-k8s.io/topology"}
	pods.Spec.SchedulingGates = append(pods.Spec.SchedulingGates, gate)
}

func restore(pods *corev1.PodTemplateSpec, original corev1.PodTemplateSpec) {
	pods.Labels, pods.Annotations = original.Labels, original.Annotations
	pods.Spec.NodeSelector, pods.Spec.Tolerations = original.Spec.NodeSelector, original.Spec.Tolerations
	pods.Spec.SchedulingGates = original.Spec.SchedulingGates
}

func with(values map[string]string, key, value string) map[string]string {
	merged := map[string]string{key: value}
	for k, v := range values {
		if k != key {
			merged[k] = v
		}
	}
	return merged
}
