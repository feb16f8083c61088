/*!
* Apache ECharts 6.1.0, of which this is a build with the parts that the page uses; see echarts.entry.js.
*
* Licensed to the Apache Software Foundation (ASF) under one
* or more contributor license agreements.  See the NOTICE file
* distributed with this work for additional information
* regarding copyright ownership.  The ASF licenses this file
* to you under the Apache License, Version 2.0 (the
* "License"); you may not use this file except in compliance
* with the License.  You may obtain a copy of the License at
*
*   http://www.apache.org/licenses/LICENSE-2.0
*
* Unless required by applicable law or agreed to in writing,
* software distributed under the License is distributed on an
* "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
* KIND, either express or implied.  See the License for the
* specific language governing permissions and limitations
* under the License.
*/
// To build echarts.min.js from this file, beside it:
//   npm install echarts@6.1.0 esbuild@0.28.2
//   npx esbuild echarts.entry.js --bundle --minify --format=iife --global-name=echarts --legal-comments=inline \
//     --define:process.env.NODE_ENV='"production"' --outfile=echarts.min.js
export { getInstanceByDom, init, version } from 'echarts/core';
import { CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import { AriaComponent, GridComponent, MarkLineComponent, TooltipComponent } from 'echarts/components';
import { use } from 'echarts/core';
import { SVGRenderer } from 'echarts/renderers';

const components = [AriaComponent, GridComponent, MarkLineComponent, TooltipComponent];
use([CustomChart, LineChart, ScatterChart, ...components, SVGRenderer]);
